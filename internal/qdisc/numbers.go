// SPDX-License-Identifier: Apache-2.0

package qdisc

// The kernel's numbers. Libraries have them for Linux alone, and what is read and written here is the same everywhere.
const (
	netlinkRoute = 0 // NETLINK_ROUTE (include/uapi/linux/netlink.h)

	// RTM_* (include/uapi/linux/rtnetlink.h)
	newLink   = 16
	getLink   = 18
	newQdisc  = 36
	delQdisc  = 37
	getQdisc  = 38
	newClass  = 40
	getClass  = 42
	newFilter = 44
	delFilter = 45
	getFilter = 46
	newChain  = 100
	getChain  = 102
	newStats  = 92
	getStats  = 94

	// IFLA_* (include/uapi/linux/if_link.h)
	iflaMTU     = 4
	iflaTxQLen  = 13
	iflaExtMask = 29

	statsLink64 = 1 // IFLA_STATS_LINK_64

	// TCA_U32_*, TCA_FLOWER_* (include/uapi/linux/pkt_cls.h)
	u32ClassID       = 1
	u32Sel           = 5
	u32Police        = 6
	u32Act           = 7
	u32Mark          = 10
	u32Terminal      = 1 // TC_U32_TERMINAL
	flowerEthType    = 8
	flowerIPProto    = 9
	flowerTCPDst     = 19
	flowerUDPDst     = 21
	flowerFlags      = 22
	flowerTCPDstMask = 36
	flowerUDPDstMask = 38
	flowerInHardware = 86 // TCA_FLOWER_IN_HW_COUNT

	// ETH_P_* (include/uapi/linux/if_ether.h)
	ethAll     = 0x0003
	ethIP      = 0x0800
	ethARP     = 0x0806
	ethVLAN    = 0x8100
	ethIPv6    = 0x86dd
	ethService = 0x88a8 // 802.1ad

	// IPPROTO_* (include/uapi/linux/in.h)
	protoTCP = 6
	protoUDP = 17
)
