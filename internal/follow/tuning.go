// SPDX-License-Identifier: Apache-2.0

package follow

import "weir/internal/wire"

// The constants by which a rate is found and followed. Times are in seconds, sizes in bits, rates in bit/s, shares of
// 1. Which links they were chosen by is in scenarios/follow and in this package's simulator (sim_test.go).

// Of the Finder, which looks for a rate that nobody has said.
const (
	minStandingDelay = 4e-3 // the least that packets wait in a queue that fills a link

	// What is seen at the beginning and at the end of a full link is left out, since srtt comes late.
	fullStartGuard, fullEndGuard = 0.2, 0.5

	// One client may seem to wait for nothing while another waits for this many times minStandingDelay: who came into
	// a standing queue has seen no RTT without it, so where that is shortest it seems to be empty.
	seemsEmptyTime, visibleDelays = 0.5, 5

	// So many seconds with a full link say what its rate is, if all but a quarter lie within the tolerance: a share,
	// and a few packets. The last keptSeconds count.
	neededSeconds, keptSeconds      = 10, 30
	rateTolerance, tolerancePackets = 0.02, 8

	minLoneTime, maxLoneLooks = 3, 300 // of one client alone, for what it gets

	// What clients get varies by this share of what all get, and by this many times as much as that does. Otherwise
	// they do not share one queue.
	minClientVariation, clientVariationRatio = 0.02, 8

	minWaitCorrelation = 0.5            // of two clients' waits, where these alone tell that the link is full
	minWaitingShare    = 0.5            // of packets that are on connections that wait for the network
	minClientShare     = 0.02           // of packets, from which on a client counts
	packetBits         = 8 * wire.Frame // of a full packet: those that were lost have not crossed the link
	idleRate           = 200e3          // fills no link
)

// Of the Follower, while packets wait in front of the provider.
const (
	rateMargin     = 0.9925 // of what was found: the rest stays free, so that a queue that forms can drain
	minQueueDelay  = 3e-3   // taken for a queue in front of the provider,
	minProbedDelay = 0.7e-3 // or while the rate is raised on purpose
	learnTime      = 1.5    // after the start, in which only the floor is learnt
	floorSeconds   = 60     // of which the calmest is the floor

	// The pause between two probes. After one that made packets wait for longProbeDelay or more it is longer, so that
	// probes take one longProbeRest'th of the time at most.
	probePause, maxProbePause     = 2.5, 5
	longProbeDelay, longProbeRest = 2e-3, 80

	// A rate that has moved by this share may move on. So the pause is a quarter of the time since, and at least this.
	movedShare, movedPauseDivisor, minProbePause = 0.03, 4, 0.5

	// What a probe may make packets wait if nothing more is found. Each step after the first raises the rate by twice
	// as much as the one before, up to the last.
	maxProbeDelay                = 0.9e-3
	firstProbeStep, maxProbeStep = 0.01, 0.12

	// A rate below this share of the one before has fallen far, and has so lately for this long. Each step of a probe
	// is larger by up to farFallGrowth then.
	farFallShare, recentFallTime, farFallGrowth = 0.7, 10, 0.5

	// Packets that a connection has sent before its srtt believes a new RTT: it takes one eighth of each sample
	// (RFC 6298), and a sample comes with every second packet.
	srttMemory = 8 * 2
	maxSRTTLag = 0.5 // by which an RTT is taken to be late

	maxDrainShare = 0.6 // of the rate, that draining may take away
	minEstimated  = 3   // looks, from which the link's rate is estimated

	// Where a network of clients disputes that a queue stands, the rate stays at this share or more of the last that
	// nobody disputed, for doubtTime. Of a network that says nothing for witnessTime nothing is kept. What its packets
	// usually wait is a mean over usualWaitTime.
	disputedShare                         = 0.8
	doubtTime, witnessTime, usualWaitTime = 60, 60, 5
)

// Of incoming traffic, whose rate the other side decides. A stretch is a while in which what came is counted.
const (
	minStretchTime, minStretchPackets = 0.1, 100

	// A stretch fills the link where it comes this near to what that delivers, and a packet or two.
	fullTolerance, fullTolerancePackets = 0.003, 1.5

	// As many stretches in a row that are the same tell what the link delivers. Either that is more than the shaper
	// lets through, by flatSurplus, or nothing waits in it though aboutShare of it comes.
	flatStretches, flatSurplus, aboutShare = 10, 1.02, 0.9

	// A rate is too high if more than maxRecentFull of the last stretches fill the link. If none of a sufficient
	// number does, more is tried.
	recentStretches, maxRecentFull, minRecentStretches = 100, 1, 40

	// Steps are shares of what the link delivers; upwards a part of what is free. Senders have followTime to follow.
	stepDown, stepUp, maxStepUp, stepUpShare, followTime = 0.01, 0.005, 0.03, 0.25, 0.5

	// With tunnels no more than this share of what the link delivers is tried. With 16 connections 97 % carried hardly
	// more, and with 4 uploads ssh waited half as long again at p99 (scenarios/follow/tunnel.toml).
	maxTunnelShare = 0.95

	// The share of what the link delivers with which a queue in front of the shaper drains, and for how long at most.
	drainShare, maxDrainTime = 0.93, 10

	retryPause, maxRetryPause = 30, 600 // before a rate that was too high is tried again
)

// Of a link behind whose shaper another rate shows: falls, rises and tests.
const (
	topMargin = 0.9975 // of the highest rate that is told: the highest that is set (plan.Goal.Room)

	// So many stretches in a row that are the same, and below this share of what the link is thought to deliver, are
	// a fall: few where the shaper was full just before, and many where it was not.
	fallStretches, slowFallStretches, fallShare, recentlyFullTime = 5, 10, 0.97, 3

	// The rate of an uneven link, such as LTE, is another one all the time. There so many stretches tell what it
	// delivers. None of them is further from their mean than maxSwing. TCP grows after a loss: its halves differ by
	// half of the range, and those of such a link by less than a quarter. A handful says what comes of a test: its
	// mean is mostly within 3 %, and a test changes the rate by 20. Where BBR leaves a little free itself, packets
	// wait in the shaper once in eight round trips. So they may in no more than one of rareWaitLooks.
	unevenStretches, maxSwing, testStretches, rareWaitLooks = 25, 0.1, 5, 20

	// The share of what the link delivers with which the queue of a fall drains, and where it may be an application's
	// doing. A first test may take firstTestTime, each further one twice as long.
	fallDrainShare, testDrainShare, firstTestTime = 0.8, 0.93, 3

	// A rise lets through more by firstRise, and by twice as much each time that it came, up to maxRise. Senders have
	// riseFollowTime to follow, and maxRiseTime to do anything.
	firstRise, maxRise, riseFollowTime, maxRiseTime = 0.02, 0.12, 0.3, 8

	// Before the next rise there is a pause, of a risePauseDivisor'th of the time since the link has moved. It has
	// moved if by this share.
	minRisePause, maxRisePause, risePauseDivisor, minMoveShare = 3, 120, 4, 0.03

	// The shaper has to be full in most of the last fullWindow stretches. After a rise, so many that are the same tell.
	fullWindow, riseFlatStretches = 8, 3
)

// Of a policer, behind which nothing waits and too much is lost.
const (
	// So many packets more than usual, and so many deviations of a Poisson process, are lost by more than chance.
	minExtraLosses, minLossDeviations = 4, 4

	// So many packets that networks should have lost, and have not, tell that one network alone has. Where fewer were
	// sent to the others, it is believed after maxUntoldTime. What they lose is compared over agreementTime or more.
	toldLosses, maxUntoldTime, agreementTime = 4, 1, 3

	heavyLossShare = 0.04 // of packets, from which on loss in calm is looked into: TCP's own search loses less

	// The pause between two probes, each of which loses packets. What TCP leaves unused after a loss is to be one
	// policerPauseRatio'th of the time, unless that takes longer than maxPolicerPause.
	policerPause, policerPauseRatio, maxPolicerPause = 5, 50, 60

	maxPolicerTests = 4  // that send less, before loss is taken not to be a policer's
	lossIgnoredTime = 60 // after it has been seen not to be a policer's
	usualLossTime   = 10 // over which the path's usual loss is summed up
)

// Of recent RTTs, which follow from srtt.
const (
	// What a smoothed RTT keeps of itself at each sample (RFC 6298 §2; tcp_rtt_estimator in net/ipv4/tcp_input.c).
	srttKeeps = 7. / 8

	// A mean of a few samples follows jitter, and on a slow link the turns of this host's queue. So it is over minSpan
	// and minSamples at least, and over no more than the time that maxSpanPackets of the link take, nor than maxSpan.
	minSpan, minSamples, maxSpanPackets, maxSpan = 0.1, 8, 80, 1.

	minExactSamples, minExactSpan = 4, 0.04 // where nothing waits in this host meanwhile
	staleTime                     = 2       // without a word, after which a connection begins anew
)

// Of a queue that stands while the shaper is put in place.
const (
	// StandingShare is the share of the rate to send until that queue has drained: one of 200 ms is gone in 0.7 s.
	StandingShare = 0.7

	blindDrainTime  = 1.5  // where no connection tells: a queue of 450 ms goes
	maxStandingTime = 10   // a queue of 3 s goes
	minRTTFall      = 1e-3 // by which an RTT has to be shorter for it to have fallen
)
