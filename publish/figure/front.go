package figure

import "math"

// sameSize is the share of its bytes by which a package may be larger than one that counts as equally large, and sameKL the
// number of standard errors within which two divergences count as equal.
const sameSize, sameKL = 0.005, 2

// Better reports whether package a is a better choice than b: smaller and as close to the source, or closer and as small. The
// divergences differ by kl, a minus b, with this standard error.
func Better(aBytes, bBytes int64, kl, stderr float64) bool {
	closer, farther := kl < -sameKL*stderr, kl > sameKL*stderr
	room := int64(sameSize * float64(bBytes))
	smaller, larger := aBytes < bBytes-room, aBytes > bBytes+room
	return !farther && !larger && (closer || smaller)
}

// MarkFront sets the kind of points to [Front], unless another one is better. Their errors count as independent.
func MarkFront(points []Point) {
	for i := range points {
		points[i].Kind = Front
		for _, p := range points {
			if Better(p.Bytes, points[i].Bytes, p.KL-points[i].KL, math.Hypot(p.StdErr, points[i].StdErr)) {
				points[i].Kind = Rest
			}
		}
	}
}
