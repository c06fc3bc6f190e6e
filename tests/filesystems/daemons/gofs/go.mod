module gofs

go 1.20

require (
	bazil.org/fuse v0.0.0-20230120002735-62a210ff1fd5
	github.com/jacobsa/fuse v0.0.0-20230810134708-ab21db1af836
)

require golang.org/x/sys v0.5.0 // indirect
