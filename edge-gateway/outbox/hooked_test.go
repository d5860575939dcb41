package outbox

// hooked is the real disk, each of whose operations goes through a function of the test's. run
// does what was asked.
type hooked struct {
	osDisk

	hook func(o operation, run func() error) error
}

// operation is what an outbox asks of its disk.
type operation struct {
	kind  string // open, remove, sync folder, write, write at, read at, sync or truncate
	path  string
	flags int // by which the file is, or was, opened
	file  file
	data  []byte // to be written, or read
	at    int64  // of data
}

func (d hooked) Open(path string, flags int) (file, error) {
	o := operation{kind: "open", path: path, flags: flags}
	err := d.hook(o, func() (err error) {
		o.file, err = d.osDisk.Open(path, flags)
		return err
	})
	if err != nil {
		return nil, err
	}
	return hookedFile{o.file, d, o}, nil
}

func (d hooked) Remove(path string) error {
	return d.hook(operation{kind: "remove", path: path}, func() error { return d.osDisk.Remove(path) })
}

func (d hooked) SyncFolder(path string) error {
	return d.hook(operation{kind: "sync folder", path: path}, func() error { return d.osDisk.SyncFolder(path) })
}

type hookedFile struct {
	file

	disk   hooked
	opened operation
}

func (f hookedFile) do(kind string, data []byte, at int64, run func() error) error {
	o := f.opened
	o.kind, o.data, o.at = kind, data, at
	return f.disk.hook(o, run)
}

func (f hookedFile) Write(b []byte) (n int, err error) {
	err = f.do("write", b, 0, func() error { n, err = f.file.Write(b); return err })
	return n, err
}

func (f hookedFile) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.do("write at", b, at, func() error { n, err = f.file.WriteAt(b, at); return err })
	return n, err
}

func (f hookedFile) ReadAt(b []byte, at int64) (n int, err error) {
	err = f.do("read at", b, at, func() error { n, err = f.file.ReadAt(b, at); return err })
	return n, err
}

func (f hookedFile) Sync() error { return f.do("sync", nil, 0, f.file.Sync) }

func (f hookedFile) Truncate(size int64) error {
	return f.do("truncate", nil, 0, func() error { return f.file.Truncate(size) })
}
