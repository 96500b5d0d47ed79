// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package meter

import (
	"context"
	"time"
)

func askHop(context.Context, string, time.Time) *HopSeen { return nil }
