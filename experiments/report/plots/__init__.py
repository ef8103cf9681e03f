"""Pictures: `picture` writes a figure in any format; each other module draws one kind of facts on it."""
