package about

// The parts of CycloneDX 1.6 that a package needs. Source: https://cyclonedx.org/docs/1.6/json/.
type (
	bom struct {
		Schema       string      `json:"$schema"`
		BOMFormat    string      `json:"bomFormat"`
		SpecVersion  string      `json:"specVersion"`
		SerialNumber string      `json:"serialNumber"`
		Version      int         `json:"version"`
		Metadata     bomMetadata `json:"metadata"`
	}
	bomMetadata struct {
		Tools     bomTools     `json:"tools"`
		Component bomComponent `json:"component"`
	}
	bomTools struct {
		Components []bomComponent `json:"components"`
	}
	bomComponent struct {
		Type        string             `json:"type"`
		Ref         string             `json:"bom-ref,omitempty"`
		Name        string             `json:"name"`
		Version     string             `json:"version,omitempty"`
		Description string             `json:"description,omitempty"`
		Hashes      []bomHash          `json:"hashes,omitempty"`
		Licenses    []bomLicenseChoice `json:"licenses,omitempty"`
		PackageURL  string             `json:"purl,omitempty"`
		Pedigree    *bomPedigree       `json:"pedigree,omitempty"`
		References  []bomReference     `json:"externalReferences,omitempty"`
		Components  []bomComponent     `json:"components,omitempty"`
		ModelCard   *bomModelCard      `json:"modelCard,omitempty"`
		Properties  []bomProperty      `json:"properties,omitempty"`
	}
	bomHash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	bomProperty struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	bomLicenseChoice struct {
		License bomLicense `json:"license"`
	}
	// bomLicense has an SPDX id or a name.
	bomLicense struct {
		ID              string `json:"id,omitempty"`
		Name            string `json:"name,omitempty"`
		URL             string `json:"url,omitempty"`
		Acknowledgement string `json:"acknowledgement"`
	}
	bomPedigree struct {
		Ancestors []bomComponent `json:"ancestors"`
		Notes     string         `json:"notes"`
	}
	// bomReference has a URL, which is relative for a file of the package.
	bomReference struct {
		Type   string    `json:"type"`
		URL    string    `json:"url"`
		Hashes []bomHash `json:"hashes,omitempty"`
	}
	bomModelCard struct {
		Parameters     bomParameters      `json:"modelParameters"`
		Analysis       *bomAnalysis       `json:"quantitativeAnalysis,omitempty"`
		Considerations *bomConsiderations `json:"considerations,omitempty"`
		Properties     []bomProperty      `json:"properties,omitempty"`
	}
	bomParameters struct {
		Task         string      `json:"task"`
		Architecture string      `json:"modelArchitecture,omitempty"`
		Datasets     []bomData   `json:"datasets,omitempty"`
		Inputs       []bomFormat `json:"inputs"`
		Outputs      []bomFormat `json:"outputs"`
	}
	bomFormat struct {
		Format string `json:"format"`
	}
	bomData struct {
		Type        string      `json:"type"`
		Name        string      `json:"name"`
		Contents    bomContents `json:"contents"`
		Description string      `json:"description"`
	}
	bomContents struct {
		Properties []bomProperty `json:"properties"`
	}
	bomAnalysis struct {
		Metrics []bomMetric `json:"performanceMetrics"`
	}
	bomMetric struct {
		Type     string       `json:"type"`
		Value    string       `json:"value"`
		Interval *bomInterval `json:"confidenceInterval,omitempty"`
	}
	bomInterval struct {
		Lower string `json:"lowerBound"`
		Upper string `json:"upperBound"`
	}
	bomConsiderations struct {
		Limitations []string `json:"technicalLimitations"`
	}
)
