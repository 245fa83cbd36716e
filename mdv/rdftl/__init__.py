"""RDFTL: event-condition-action rules on the metadata. The language and its analysis; nothing here does I/O."""
