// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

#define NOP8 BYTE $0x90; BYTE $0x90; BYTE $0x90; BYTE $0x90; BYTE $0x90; BYTE $0x90; BYTE $0x90; BYTE $0x90
#define NOP64 NOP8; NOP8; NOP8; NOP8; NOP8; NOP8; NOP8; NOP8

// func busy() (pid int)
// clone(CLONE_VM): the child shares everything, so that to switch to it costs nothing; it needs no stack, since it never touches one. The
// emulator translates an instruction that does nothing into nothing: a round of this is one block, and takes it two nanoseconds.
TEXT ·busy(SB), NOSPLIT, $0-8
	MOVQ	$56, AX    // SYS_clone
	MOVQ	$0x100, DI // CLONE_VM
	XORQ	SI, SI
	XORQ	DX, DX
	XORQ	R10, R10
	XORQ	R8, R8
	SYSCALL
	TESTQ	AX, AX
	JZ	idle
	MOVQ	AX, pid+0(FP)
	RET
idle:
	NOP64
	NOP64
	NOP64
	NOP64
	NOP64
	NOP64
	NOP64
	JMP	idle
