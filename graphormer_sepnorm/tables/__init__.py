"""Tables of molecules in files: read and written row by row, whatever their size and format."""
