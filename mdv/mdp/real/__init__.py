"""Programs that change documents: processes, their slices, what they wait for, and their activity documents."""
