// Package pb is the protobuf of the directory's log, snapshots and stream,
// generated from domicile.proto. Only package proto uses it; everyone else
// speaks in the types of package fsm.
//
// To generate it again, with Debian's protobuf-compiler installed: go generate
package pb

//go:generate sh -c "protoc --plugin=protoc-gen-go=$(go tool -n protoc-gen-go) --plugin=protoc-gen-go-vtproto=$(go tool -n protoc-gen-go-vtproto) --go_out=. --go_opt=paths=source_relative --go-vtproto_out=. --go-vtproto_opt=paths=source_relative,features=marshal+unmarshal+unmarshal_unsafe+size+pool,pool=domicile/proto/internal/pb.Records,pool=domicile/proto/internal/pb.Tenant,pool=domicile/proto/internal/pb.Placed,pool=domicile/proto/internal/pb.Events,pool=domicile/proto/internal/pb.Event,pool=domicile/proto/internal/pb.UnitInfo domicile.proto"
