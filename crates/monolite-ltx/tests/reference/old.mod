// The last version that wrote pages as LZ4 frames: go run -modfile=old.mod . golden old- ../golden
module monolite/ltx-reference

go 1.24

require github.com/superfly/ltx v0.5.1

require github.com/pierrec/lz4/v4 v4.1.22 // indirect
