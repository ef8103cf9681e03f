"""A campaign for its reader: `terminal` shows it while it runs and where it stands, `markdown` what it found."""
