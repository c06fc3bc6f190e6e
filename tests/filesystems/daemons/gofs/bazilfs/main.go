// A file system on bazil.org/fuse that shows a directory, read-only: bazilfs DIRECTORY MOUNTPOINT
package main

import (
	"context"
	"io"
	"log"
	"os"
	"path/filepath"
	"syscall"

	"bazil.org/fuse"
	"bazil.org/fuse/fs"
)

type file struct{ path string }

func (f file) Root() (fs.Node, error) { return f, nil }

func (f file) Attr(_ context.Context, attr *fuse.Attr) error {
	var st syscall.Stat_t
	if err := syscall.Lstat(f.path, &st); err != nil {
		return err
	}
	info, err := os.Lstat(f.path)
	if err != nil {
		return err
	}
	attr.Inode, attr.Size, attr.Blocks = st.Ino, uint64(st.Size), uint64(st.Blocks)
	attr.Mode, attr.Mtime, attr.Nlink = info.Mode(), info.ModTime(), uint32(st.Nlink)
	attr.Uid, attr.Gid, attr.BlockSize = st.Uid, st.Gid, uint32(st.Blksize)
	return nil
}

func (f file) Lookup(_ context.Context, name string) (fs.Node, error) {
	found := file{filepath.Join(f.path, name)}
	if _, err := os.Lstat(found.path); err != nil {
		return nil, syscall.ENOENT
	}
	return found, nil
}

func (f file) Readlink(context.Context, *fuse.ReadlinkRequest) (string, error) {
	return os.Readlink(f.path)
}

func (f file) Open(_ context.Context, req *fuse.OpenRequest, _ *fuse.OpenResponse) (fs.Handle, error) {
	if req.Dir {
		return f, nil
	}
	opened, err := os.Open(f.path)
	return handle{opened}, err
}

func (f file) ReadDirAll(context.Context) ([]fuse.Dirent, error) {
	entries, err := os.ReadDir(f.path)
	var found []fuse.Dirent
	for _, entry := range entries {
		found = append(found, fuse.Dirent{Name: entry.Name()})
	}
	return found, err
}

func (f file) Statfs(_ context.Context, _ *fuse.StatfsRequest, out *fuse.StatfsResponse) error {
	var st syscall.Statfs_t
	err := syscall.Statfs(f.path, &st)
	out.Blocks, out.Bfree, out.Bavail, out.Bsize = st.Blocks, st.Bfree, st.Bavail, uint32(st.Bsize)
	out.Files, out.Ffree, out.Namelen, out.Frsize = st.Files, st.Ffree, 255, uint32(st.Frsize)
	return err
}

type handle struct{ *os.File }

func (h handle) Read(_ context.Context, req *fuse.ReadRequest, out *fuse.ReadResponse) error {
	out.Data = make([]byte, req.Size)
	n, err := h.ReadAt(out.Data, req.Offset)
	out.Data = out.Data[:n]
	if err == io.EOF {
		return nil
	}
	return err
}

func (h handle) Release(context.Context, *fuse.ReleaseRequest) error { return h.Close() }

func main() {
	connection, err := fuse.Mount(os.Args[2], fuse.FSName("bazilfs"), fuse.ReadOnly())
	if err == nil {
		err = fs.Serve(connection, file{os.Args[1]})
	}
	if err != nil {
		log.Fatal(err)
	}
}
