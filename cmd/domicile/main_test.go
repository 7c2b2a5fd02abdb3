package main

import (
	"testing"

	"domicile/internal/testcluster"
)

func TestMain(m *testing.M) { testcluster.Main(m) }
