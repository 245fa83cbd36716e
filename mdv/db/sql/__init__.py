"""Named SQL statements of mdv/db; see `mdv.db.load_sql`."""
