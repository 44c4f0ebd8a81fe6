package runtime

import (
	"os"
	"path/filepath"
)

// Files lists the names of the files that are opened, relative to Dir.
func (p *Package) Files() []string {
	c := p.Config
	files := []string{"config.json", c.LLMConfig}
	for _, part := range p.Parts {
		files = append(files, part.GraphFile, part.WeightFile)
	}
	files = append(files, c.TokenizerFile)
	if p.embedding.file != nil {
		files = append(files, c.EmbeddingFile)
	}
	return files
}

// Bytes returns the total size of these files.
func (p *Package) Bytes() (int64, error) {
	var n int64
	for _, f := range p.Files() {
		st, err := os.Stat(filepath.Join(p.Dir, f))
		if err != nil {
			return 0, err
		}
		n += st.Size()
	}
	return n, nil
}
