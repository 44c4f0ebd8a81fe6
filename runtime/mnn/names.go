package mnn

import (
	"cmp"
	"fmt"
	"math"
)

// SentenceOutput names the output of a graph that computes one vector of a text, in place of logits.
const SentenceOutput = "sentence_embeddings"

// GraphFile returns the name of the file that holds the graph of a part of a package. The text model has the empty name.
func GraphFile(part string) string { return cmp.Or(part, "llm") + ".mnn" }

// WeightFile returns the name of the file that holds the weights of a part. The engine derives it from that of the graph.
func WeightFile(part string) string { return GraphFile(part) + ".weight" }

// VisualPart is the name of the part of a package that reads pictures: a tower.
const VisualPart = "visual"

// AudioPart is the name of the part that reads sound.
const AudioPart = "audio"

// The names of the input of a tower that reads pictures of one size, and of the output of towers. The engine chooses the way in which it reads
// pictures by the name and the number of the inputs.
const (
	PicturesInput = "input_images"
	// PatchesInput is that of a tower that reads the patches of pictures of any size.
	PatchesInput = "patches"
	// CornersInput and WeightsInput come with patches of 16 pixels: the four learned positions next to each patch, and their weights. Towers
	// here compute both themselves.
	CornersInput, WeightsInput = "idx_tensor", "weight_tensor"
	// PaddedInput is that of a tower that reads a fixed number of patches, row by row, of which the last ones may be none, and PlacesInput
	// the column and row of each, -1 for none.
	PaddedInput, PlacesInput = "input_patches", "image_position_ids"
	// TilesInput is that of a tower that reads the tiles of a picture, any number at a time, or views of several sizes, of which SizesInput has
	// the height and width in patches.
	TilesInput, SizesInput = "pixel_values", "tgt_sizes"
	PictureRows            = "image_embeds"
	// FeaturesInput is that of a part that reads sound, and SoundRows its output.
	FeaturesInput = "input_features"
	SoundRows     = "audio_embeds"
)

// PaddedDivisor is what the engine divides the rows of such a tower by, whatever the width of the text model.
const PaddedDivisor = 39.25

// USMDivisor is what the engine divides the rows of a part by that reads features of audio_type usm, for a hidden_size, as it rounds it.
func USMDivisor(hidden int) float64 { return float64(float32(math.Sqrt(float64(hidden)))) }

// DeepRows is a second output of a tower that reads patches, [slices, rows, hidden], and DeepInput the input of the text model for it. What is
// in slice i is added after layer i.
const (
	DeepRows  = "deepstack_feature"
	DeepInput = "deepstack_embeds"
)

// LayerOutput names the op that adds the last branch of layer i to the residual stream.
func LayerOutput(i int) string { return fmt.Sprintf("/layers.%d/mlp/residual", i) }
