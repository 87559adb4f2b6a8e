"""A store that is divided anew: the rows of all parts of a node, dealt to another number of parts."""
