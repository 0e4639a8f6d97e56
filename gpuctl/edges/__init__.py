"""The only files that know outside libraries and programs; one file each."""
