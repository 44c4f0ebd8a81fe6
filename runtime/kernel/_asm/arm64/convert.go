package main

// convert has loops over eight elements.
func convert() {
	const dst, src, n = r(0), r(1), r(2)
	const wider, narrower = "(dst *float32, src *byte, n int)", "(dst *byte, src *float32, n int)"
	loop := func(name, signature, load, store string, body func()) {
		begin(name, signature)
		label("loop")
		ins(load, src)
		body()
		ins(store, dst)
		ins("SUBS $8, %s", n)
		ins("BNE loop")
		ret()
	}
	loop("bf16ToF32NEON", wider, "VLD1.P 16(%s), [V0.H8]", "VST1.P [V1.S4, V2.S4], 32(%s)", func() {
		two(0x2e613800, "SHLL", "4S", "4H, #16", 1, 0)
		two(0x6e613800, "SHLL2", "4S", "8H, #16", 2, 0)
	})
	loop("f16ToF32NEON", wider, "VLD1.P 16(%s), [V0.H8]", "VST1.P [V1.S4, V2.S4], 32(%s)", func() {
		two(0x0e217800, "FCVTL", "4S", "4H", 1, 0)
		two(0x4e217800, "FCVTL2", "4S", "8H", 2, 0)
	})
	loop("f32ToF16NEON", narrower, "VLD1.P 32(%s), [V0.S4, V1.S4]", "VST1.P [V2.H8], 16(%s)", func() {
		two(0x0e216800, "FCVTN", "4H", "4S", 2, 0)
		two(0x4e216800, "FCVTN2", "8H", "4S", 2, 1)
	})
}
