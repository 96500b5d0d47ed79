// SPDX-License-Identifier: Apache-2.0

//go:build all

package change

// everyStep: whether a run is killed at each of its steps, and the one that mends it, too, which takes minutes of CPU
// time (make test-all), or at every seventh.
const everyStep = true
