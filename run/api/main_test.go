package api

import (
	"os"
	"testing"

	"coldaisle.dev/shared/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
