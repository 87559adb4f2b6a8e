"""The sections of the page, with the plots and tables of each."""
