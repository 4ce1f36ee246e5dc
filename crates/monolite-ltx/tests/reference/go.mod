module monolite/ltx-reference

go 1.24

require github.com/superfly/ltx v0.5.2

require github.com/pierrec/lz4/v4 v4.1.23 // indirect
