"""What spark-submit is given to run. It puts this folder before all others where Python looks for modules, so nothing
else may be in it."""
