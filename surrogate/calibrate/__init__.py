"""What measured steps say about the costs that the simulator was given."""
