// A file system on jacobsa/fuse that shows a directory, read-only: jacobsafs DIRECTORY MOUNTPOINT
package main

import (
	"context"
	"io"
	"log"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/jacobsa/fuse"
	"github.com/jacobsa/fuse/fuseops"
	"github.com/jacobsa/fuse/fuseutil"
)

type server struct {
	fuseutil.NotImplementedFileSystem
	lock    sync.Mutex
	paths   map[fuseops.InodeID]string
	inodes  map[string]fuseops.InodeID
	handles map[fuseops.HandleID]*os.File
	last    uint64
}

func (s *server) path(inode fuseops.InodeID) string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.paths[inode]
}

func (s *server) inode(path string) fuseops.InodeID {
	s.lock.Lock()
	defer s.lock.Unlock()
	if _, known := s.inodes[path]; !known {
		s.last++
		s.inodes[path] = fuseops.InodeID(s.last)
		s.paths[fuseops.InodeID(s.last)] = path
	}
	return s.inodes[path]
}

func attributes(path string) (fuseops.InodeAttributes, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return fuseops.InodeAttributes{}, syscall.ENOENT
	}
	st := info.Sys().(*syscall.Stat_t)
	return fuseops.InodeAttributes{
		Size: uint64(st.Size), Nlink: uint32(st.Nlink), Mode: info.Mode(), Mtime: info.ModTime(),
		Uid: st.Uid, Gid: st.Gid,
	}, nil
}

func (s *server) LookUpInode(_ context.Context, op *fuseops.LookUpInodeOp) error {
	path := filepath.Join(s.path(op.Parent), op.Name)
	found, err := attributes(path)
	if err == nil {
		op.Entry.Child, op.Entry.Attributes = s.inode(path), found
	}
	return err
}

func (s *server) GetInodeAttributes(_ context.Context, op *fuseops.GetInodeAttributesOp) (err error) {
	op.Attributes, err = attributes(s.path(op.Inode))
	return err
}

func (s *server) ForgetInode(context.Context, *fuseops.ForgetInodeOp) error { return nil }

func (s *server) ReadSymlink(_ context.Context, op *fuseops.ReadSymlinkOp) (err error) {
	op.Target, err = os.Readlink(s.path(op.Inode))
	return err
}

func (s *server) OpenDir(context.Context, *fuseops.OpenDirOp) error { return nil }

func (s *server) ReadDir(_ context.Context, op *fuseops.ReadDirOp) error {
	entries, err := os.ReadDir(s.path(op.Inode))
	for at := int(op.Offset); at < len(entries); at++ {
		entry := fuseutil.Dirent{
			Offset: fuseops.DirOffset(at + 1), Inode: fuseops.InodeID(1 << 32), Name: entries[at].Name(),
		}
		n := fuseutil.WriteDirent(op.Dst[op.BytesRead:], entry)
		if n == 0 {
			break
		}
		op.BytesRead += n
	}
	return err
}

func (s *server) OpenFile(_ context.Context, op *fuseops.OpenFileOp) error {
	opened, err := os.Open(s.path(op.Inode))
	if err != nil {
		return syscall.EIO
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.last++
	op.Handle = fuseops.HandleID(s.last)
	s.handles[op.Handle] = opened
	return nil
}

func (s *server) file(handle fuseops.HandleID) *os.File {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.handles[handle]
}

func (s *server) ReadFile(_ context.Context, op *fuseops.ReadFileOp) (err error) {
	op.BytesRead, err = s.file(op.Handle).ReadAt(op.Dst, op.Offset)
	if err == io.EOF {
		return nil
	}
	return err
}

func (s *server) ReleaseFileHandle(_ context.Context, op *fuseops.ReleaseFileHandleOp) error {
	return s.file(op.Handle).Close()
}

func (s *server) StatFS(_ context.Context, op *fuseops.StatFSOp) error {
	var st syscall.Statfs_t
	err := syscall.Statfs(s.path(fuseops.RootInodeID), &st)
	op.BlockSize, op.IoSize = uint32(st.Bsize), uint32(st.Bsize)
	op.Blocks, op.BlocksFree, op.BlocksAvailable = st.Blocks, st.Bfree, st.Bavail
	op.Inodes, op.InodesFree = st.Files, st.Ffree
	return err
}

func main() {
	served := &server{
		paths:   map[fuseops.InodeID]string{},
		inodes:  map[string]fuseops.InodeID{},
		handles: map[fuseops.HandleID]*os.File{},
	}
	served.inode(os.Args[1]) // the root
	options := &fuse.MountConfig{FSName: "jacobsafs", ReadOnly: true}
	mounted, err := fuse.Mount(os.Args[2], fuseutil.NewFileSystemServer(served), options)
	if err == nil {
		err = mounted.Join(context.Background())
	}
	if err != nil {
		log.Fatal(err)
	}
}
