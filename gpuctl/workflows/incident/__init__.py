"""incident: carry out its steps by existing workflows, with a record before and after every step."""
