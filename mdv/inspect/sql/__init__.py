"""SQL of the read-only views, with the `.sql` files beside the modules that run them."""
