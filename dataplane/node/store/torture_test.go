package store

func tortureChild(dir string) {}
