"""What operators do with endpoints: cordon, drain and weight by file, label and command, and the page that shows them."""
