"""Event-condition-action rules: their execution in the transaction of a change, and changes of the rules."""
