"""What the commands do, up to the facts they found."""
