// The original, for comparison: reads, writes and merges LTX files with github.com/superfly/ltx in
// the version of Litestream v0.5.18. The tests in ../it run it where Go is installed.
//
//	dump FILE...                what is in the files, as text; fails unless all are whole
//	reencode IN OUT [IN OUT]... reads a file and writes what it read
//	compact OUT IN...           merges files, oldest first
//	times                       RFC 3339 for each number of milliseconds, a line each
//	golden PREFIX DIR           writes the files in ../golden
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/superfly/ltx"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("say dump, reencode, compact, times or golden")
	}
	switch verb, args := args[0], args[1:]; verb {
	case "dump":
		for _, path := range args {
			if err := dump(path); err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(path), err)
			}
		}
		return nil
	case "reencode":
		for ; len(args) >= 2; args = args[2:] {
			if err := reencode(args[0], args[1]); err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(args[0]), err)
			}
		}
		return nil
	case "compact":
		return compact(args[0], args[1:])
	case "times":
		return times()
	case "golden":
		return golden(args[0], args[1])
	default:
		return fmt.Errorf("no verb %q", verb)
	}
}

func dump(path string) error {
	file, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	dec := ltx.NewDecoder(bytes.NewReader(file))
	if err := dec.DecodeHeader(); err != nil {
		return err
	}
	h := dec.Header()
	fmt.Printf("file %s, %d bytes\n", filepath.Base(path), len(file))
	fmt.Printf("name %s\n", ltx.FormatFilename(h.MinTXID, h.MaxTXID))
	fmt.Printf("tracked %t, page size %d, commit %d, time %s\n", !h.NoChecksum(), h.PageSize,
		h.Commit, ltx.FormatTimestamp(time.UnixMilli(h.Timestamp)))
	fmt.Printf("before %s, WAL %d %d %08x %08x, node %d\n", h.PreApplyChecksum, h.WALOffset,
		h.WALSize, h.WALSalt1, h.WALSalt2, h.NodeID)
	var pages []uint32
	for {
		var page ltx.PageHeader
		data := make([]byte, h.PageSize)
		if err := dec.DecodePage(&page, data); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		pages = append(pages, page.Pgno)
		fmt.Printf("page %d %s\n", page.Pgno, ltx.ChecksumPage(page.Pgno, data))
	}
	if err := dec.Close(); err != nil {
		return err
	}
	for _, pgno := range pages {
		elem, ok := dec.PageIndex()[pgno]
		if !ok {
			return fmt.Errorf("page %d is not in the index", pgno)
		}
		// Its part of the file alone gives a page of that number, too.
		page, _, err := ltx.DecodePageData(file[elem.Offset : elem.Offset+elem.Size])
		if err != nil || page.Pgno != pgno {
			return fmt.Errorf("page %d by the index: %d, %v", pgno, page.Pgno, err)
		}
		fmt.Printf("at %d: %d, %d bytes\n", elem.Offset, pgno, elem.Size)
	}
	t := dec.Trailer()
	fmt.Printf("after %s, sum %s\n\n", t.PostApplyChecksum, t.FileChecksum)
	return nil
}

func reencode(in, out string) error {
	file, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	var spec ltx.FileSpec
	if _, err := spec.ReadFrom(bytes.NewReader(file)); err != nil {
		return err
	}
	var buf bytes.Buffer
	if _, err := spec.WriteTo(&buf); err != nil {
		return err
	}
	return os.WriteFile(out, buf.Bytes(), 0o644)
}

func compact(out string, in []string) error {
	var readers []io.Reader
	var flags uint32
	for _, path := range in {
		file, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		flags = binary.BigEndian.Uint32(file[4:])
		readers = append(readers, bytes.NewReader(file))
	}
	var buf bytes.Buffer
	c, err := ltx.NewCompactor(&buf, readers)
	if err != nil {
		return err
	}
	c.HeaderFlags = flags
	if err := c.Compact(context.Background()); err != nil {
		return err
	}
	return os.WriteFile(out, buf.Bytes(), 0o644)
}

func times() error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		millis, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			return err
		}
		fmt.Println(ltx.FormatTimestamp(time.UnixMilli(millis)))
	}
	return lines.Err()
}

// file is a file that grows page by page.
type file struct {
	header ltx.Header
	pages  []uint32
	make   func(pgno uint32) []byte
	after  ltx.Checksum
}

func (f file) write(dir, name string) error {
	var buf bytes.Buffer
	enc, err := ltx.NewEncoder(&buf)
	if err != nil {
		return err
	}
	f.header.Version = ltx.Version
	if err := enc.EncodeHeader(f.header); err != nil {
		return err
	}
	for _, pgno := range f.pages {
		if err := enc.EncodePage(ltx.PageHeader{Pgno: pgno}, f.make(pgno)); err != nil {
			return err
		}
	}
	enc.SetPostApplyChecksum(f.after)
	if err := enc.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), buf.Bytes(), 0o644)
}

// content is a page of one of four kinds: zeros, text, noise that no compressor shrinks, and half
// of it noise.
func content(size int, pgno uint32, version uint64) []byte {
	page := make([]byte, size)
	seed := uint64(pgno)*1000 + version
	noise := func(part []byte) {
		for i := range part {
			seed = seed*6364136223846793005 + 1442695040888963407
			part[i] = byte(seed >> 56)
		}
	}
	switch (uint64(pgno) + version) % 4 {
	case 0:
	case 1:
		copy(page, bytes.Repeat([]byte(fmt.Sprintf("page %d, version %d; ", pgno, version)), size/16))
	case 2:
		noise(page)
	case 3:
		noise(page[:size/2])
	}
	return page
}

// database keeps the sum of a database whose pages change.
type database struct {
	size  int
	pages map[uint32][]byte
}

func (d database) sum() ltx.Checksum {
	sum := ltx.ChecksumFlag
	for pgno, page := range d.pages {
		sum = ltx.ChecksumFlag | (sum ^ ltx.ChecksumPage(pgno, page))
	}
	return sum
}

// commit writes what a transaction changed, and the file of it.
func (d database) commit(dir, name string, h ltx.Header, version uint64, pages ...uint32) error {
	tracked := h.Flags&ltx.HeaderFlagNoChecksum == 0
	if tracked && h.MinTXID > 1 {
		h.PreApplyChecksum = d.sum()
	}
	for _, pgno := range pages {
		d.pages[pgno] = content(d.size, pgno, version)
	}
	for pgno := range d.pages {
		if pgno > h.Commit {
			delete(d.pages, pgno)
		}
	}
	f := file{header: h, pages: pages, make: func(pgno uint32) []byte { return d.pages[pgno] }}
	f.header.PageSize = uint32(d.size)
	if tracked {
		f.after = d.sum()
	}
	return f.write(dir, name)
}

func golden(prefix, dir string) error {
	for _, write := range []func(prefix, dir string) error{vectors, chain, sizes, aroundTheLockPage} {
		if err := write(prefix, dir); err != nil {
			return err
		}
	}
	return nil
}

// vectors are files whose sums are pinned elsewhere.
func vectors(prefix, dir string) error {
	count := func(pgno uint32) []byte {
		page := make([]byte, 512)
		for i := range page {
			if pgno == 1 {
				page[i] = byte(i)
			}
		}
		return page
	}
	h := ltx.Header{
		Flags: ltx.HeaderFlagNoChecksum, PageSize: 512, Commit: 2, MinTXID: 1, MaxTXID: 1,
		Timestamp: 1700000000000, WALOffset: 32, NodeID: 7,
	}
	f := file{header: h, pages: []uint32{1, 2}, make: count}
	if err := f.write(dir, prefix+"two-pages.ltx"); err != nil {
		return err
	}
	h.MinTXID, h.MaxTXID = 4, 4
	if err := (file{header: h}).write(dir, prefix+"no-pages.ltx"); err != nil {
		return err
	}
	// TestEncoder_PageIndexGolden of superfly/ltx pins e27f4c18f0da2c10 for this one.
	f = file{
		header: ltx.Header{
			PageSize: 512, Commit: 16, MinTXID: 2, MaxTXID: 3, Timestamp: 1000,
			PreApplyChecksum: ltx.ChecksumFlag | 1,
		},
		pages: []uint32{2, 5, 9, 16},
		make: func(pgno uint32) []byte {
			page := make([]byte, 512)
			for i := range page {
				page[i] = byte(pgno) + byte(i%7)
			}
			return page
		},
		after: ltx.ChecksumFlag | 2,
	}
	return f.write(dir, prefix+"sparse.ltx")
}

// chain is a history with growth and shrinking, once with sums and once without, and merged.
func chain(prefix, dir string) error {
	for _, kind := range []struct {
		name  string
		flags uint32
	}{{"tracked", 0}, {"untracked", ltx.HeaderFlagNoChecksum}} {
		d := database{1024, map[uint32][]byte{}}
		name := func(part string) string { return prefix + kind.name + "-" + part + ".ltx" }
		header := func(txid ltx.TXID, commit uint32) ltx.Header {
			return ltx.Header{
				Flags: kind.flags, Commit: commit, MinTXID: txid, MaxTXID: txid,
				Timestamp: 1764054268000 + int64(txid), WALOffset: 32 + int64(txid)*4096,
				WALSize: 4096, WALSalt1: 0x01020304, WALSalt2: 0xfffefdfc, NodeID: 3,
			}
		}
		if err := d.commit(dir, name("1"), header(1, 5), 1, 1, 2, 3, 4, 5); err != nil {
			return err
		}
		if err := d.commit(dir, name("2"), header(2, 7), 2, 1, 3, 6, 7); err != nil {
			return err
		}
		if err := d.commit(dir, name("3"), header(3, 3), 3, 1, 2); err != nil {
			return err
		}
		if err := d.commit(dir, name("4"), header(4, 6), 4, 3, 4, 5, 6); err != nil {
			return err
		}
		path := func(part string) string { return filepath.Join(dir, name(part)) }
		if err := compact(path("1-4"), []string{path("1"), path("2"), path("3"), path("4")}); err != nil {
			return err
		}
		if err := compact(path("2-3"), []string{path("2"), path("3")}); err != nil {
			return err
		}
	}
	return nil
}

// sizes are snapshots of pages of other sizes.
func sizes(prefix, dir string) error {
	for _, size := range []int{4096, 65536} {
		d := database{size, map[uint32][]byte{}}
		h := ltx.Header{Commit: 3, MinTXID: 1, MaxTXID: 9, Timestamp: -1}
		pages, version := []uint32{1, 2, 3}, uint64(0)
		if size == 65536 {
			// Zeros and text: noise would be most of the bytes in this directory.
			h.Commit, pages, version = 2, []uint32{1, 2}, 3
		}
		name := fmt.Sprintf("%ssize-%d.ltx", prefix, size)
		if err := d.commit(dir, name, h, version, pages...); err != nil {
			return err
		}
	}
	return nil
}

// aroundTheLockPage is a change of the pages before and after the one that SQLite locks.
func aroundTheLockPage(prefix, dir string) error {
	lock := ltx.LockPgno(512)
	f := file{
		header: ltx.Header{
			Flags: ltx.HeaderFlagNoChecksum, PageSize: 512, Commit: lock + 9, MinTXID: 2,
			MaxTXID: 1 << 40, Timestamp: 253402300799999,
		},
		pages: []uint32{lock - 1, lock + 1},
		make:  func(pgno uint32) []byte { return content(512, pgno, 0) },
	}
	return f.write(dir, prefix+"lock-page.ltx")
}
