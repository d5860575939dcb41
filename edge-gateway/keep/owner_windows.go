package keep

// giveToOwner has nothing to do: a file inherits the rights of its folder.
func giveToOwner(string, string) error { return nil }
