"""Programs that run in pods: started, heard, and ended for certain."""
