// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The controller by itself, for a test that steps it in the kernel beside the model in rfc9332_test.go. */
#include "kernel.h"
#include "pi2.h"

char _license[] SEC("license") = "Dual BSD/GPL";

struct controller {
	struct pi2 params;
	struct pi2_state state;
	u64 now, head;	/* ns */
};

SEC("syscall")
int controller_step(struct controller *x)
{
	struct pi2 params = x->params;
	struct pi2_state state = x->state;

	pi2_catch_up(&params, &state, x->now, x->head);
	x->state = state;
	return 0;
}
