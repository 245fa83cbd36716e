"""Batch registration on Spark: documents are read, prepared and staged by executors, and promoted by the driver."""
