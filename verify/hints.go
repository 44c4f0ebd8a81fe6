package verify

// Hinter is a check that knows what its failure is owed to. [Hint] asks it.
type Hinter interface {
	// Hint says in a sentence what helps a package that fails the check.
	Hint() string
}

// Hint says what helps a package that failed the check of a name; it is empty if the check says nothing.
func Hint(check string) string {
	for _, c := range checks {
		if h, ok := c.(Hinter); ok && c.String() == check {
			return h.Hint()
		}
	}
	return ""
}

// ours is the hint of checks that no recipe makes fail.
const ours = "nothing in a recipe helps: this is a fault of this program; a report with the recipe and the checkpoint's config.json is welcome"

func (layout) Hint() string {
	return "the files are not those that the manifest was written for: make or pull the package again; pull --replace mends one"
}

func (coverage) Hint() string { return ours }

func (weights) Hint() string {
	return "errors that a method reports are lowered by more bits, smaller blocks or another quantize.method, and verify.weights.max of the recipe is their limit; weights that it did not choose are a fault of this program"
}

func (tokenizerParity) Hint() string {
	return "llmexport tokenize PACKAGE --source CHECKPOINT shows where ids differ; verify.tokenizer.max_plain and max_hard of the recipe say how many strings may"
}

func (templateParity) Hint() string {
	return "llmexport template PACKAGE --engine shows what the engine makes of a conversation; rewrite.template of the recipe takes another template, or a plain one with simplify"
}

func (graph) Hint() string { return ours }

func (layers) Hint() string {
	return "more bits or smaller blocks, of the layer that is named at least, come closer to the source; verify.layers.max of the recipe is the limit"
}

func (sourceSane) Hint() string {
	return "the checkpoint itself does not predict the text: its weights are damaged or were never trained, or the text is not of its kind; verify.perplexity has text and max_source"
}

func (perplexity) Hint() string {
	return "more bits or smaller blocks come closer to the source; verify.perplexity.max_ratio of the recipe is the limit"
}

func (divergence) Hint() string {
	return "more bits or smaller blocks come closer to the source; verify.kl.max of the recipe is the limit"
}

func (decode) Hint() string {
	return "where tokens fed one by one keep close to the same fed at once, more bits or smaller blocks help, and verify.kl.max is the limit; else it is a fault of this program"
}

func (positions) Hint() string { return ours }

func (activations) Hint() string {
	return "the values are the checkpoint's own; \"precision\": \"normal\" in the package's config.json keeps devices from computing in fp16"
}

func (golden) Hint() string {
	return "the recorded outputs are of other weights, or of another program that computes otherwise: verify.golden of the recipe names their file"
}
