package fakeadb

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

// settings are the keys of the configuration that the programs follow.
type settings struct {
	BaseDir     string `json:"base_dir"`
	Memory      string `json:"memory"`
	SamplerType string `json:"sampler_type"`
	UseTemplate *bool  `json:"use_template"`
}

// openPackage opens the package that a configuration names.
func openPackage(config string) (*runtime.Package, *runtime.Session, error) {
	b, err := os.ReadFile(config)
	if err != nil {
		return nil, nil, err
	}
	var s settings
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, nil, err
	}
	if s.SamplerType != "greedy" || s.UseTemplate == nil || *s.UseTemplate || !strings.HasSuffix(s.BaseDir, "/") {
		return nil, nil, fmt.Errorf("the fake engine knows no sampling and no templates: %s", b)
	}
	p, err := runtime.Open(filepath.Clean(s.BaseDir))
	if err != nil {
		return nil, nil, err
	}
	o := runtime.Options{DynamicOption: p.Config.DynamicOption, CacheBytes: 64 << 20, Threads: 1}
	if s.Memory == "low" {
		o.Mode = backend.Int8
	}
	sess, err := runtime.NewSession(p, cpu.Backend{}, o)
	return p, sess, err
}

// demo is llm_demo CONFIG PROMPTS TOKENS of MNN 3.6.1 on a device. Faults of the engine:
//
//	crash     it is killed within the text
//	init      it cannot load the package, which llm_demo reports with exit code 0
//	code      it ends with exit code 7
//	linker    the linker of Android does not start it
//	wrong     the text is another one
//	tokens    it reports another number of tokens of the prompt
//	short     it reports a token less than it prints
//	format    the table of times has other names
//	cut       the output ends within the table
//	mute      it prints nothing
//	log       messages go to the log of Android, as with MNN_USE_LOGCAT
//	hang      it runs until it is terminated, and leaves the files running and terminated in the state
//	worse     ppl_eval computes a perplexity that is 5 % larger
func demo(args []string) int {
	f := fault("engine")
	switch f {
	case "linker":
		return complain(127, `CANNOT LINK EXECUTABLE "%s": library "libMNN_Express.so" not found`, args[0])
	case "code":
		return complain(7, "terminating")
	case "mute":
		return 0
	case "hang":
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		_ = os.WriteFile(filepath.Join(os.Getenv(State), "running"), nil, 0o644)
		<-terminated
		_ = os.WriteFile(filepath.Join(os.Getenv(State), "terminated"), nil, 0o644)
		return 1
	}
	if len(args) != 4 {
		fmt.Printf("Usage: %s config.json <prompt.txt>\n", args[0])
		return 0
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	messages := io.Writer(out)
	if f == "log" {
		log, err := os.Create(logFile())
		if err != nil {
			return complain(1, "%v", err)
		}
		defer log.Close()
		messages = log
	}
	fmt.Fprintf(out, "config path is %s\n", args[1])
	fmt.Fprintf(messages, "The device supports: i8sdot:1, fp16:1, i8mm: 1, sve2: 1, sme2: 0\n")
	p, sess, err := openPackage(args[1])
	if err != nil || f == "init" {
		fmt.Fprintf(messages, "[Error]: LLM model file not found: %v\nLLM init error\nmain, 276, cost time: 15.375000 ms\n", err)
		return 0
	}
	defer p.Close()
	fmt.Fprint(messages, "main, 276, cost time: 1125.765015 ms\nPrepare for tuning opt Begin\nPrepare for tuning opt End\n"+
		"main, 284, cost time: 1570.437988 ms\n")
	b, err := os.ReadFile(args[2])
	if err != nil {
		return 1
	}
	most, _ := strconv.Atoi(args[3])
	fmt.Fprintf(out, "prompt file is %s\n", args[2])
	prompt := p.Tokenizer.Encode(strings.TrimSuffix(string(b), "\n"))
	n := 0
	err = sess.Generate(context.Background(), prompt, runtime.GenerateOptions{MaxTokens: most}, func(t int32) bool {
		if n++; f == "crash" && n == 3 {
			out.Flush()
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				_ = self.Kill()
			}
			select {}
		}
		if f == "wrong" && n == 4 {
			fmt.Fprint(out, " zebra")
			return true
		}
		fmt.Fprint(out, p.Tokenizer.Decode([]int32{t}))
		return true
	})
	if err != nil {
		return complain(1, "%v", err)
	}
	if n < most {
		n++ // a stop token
		fmt.Fprintln(out)
	}
	table(messages, f, len(prompt), n)
	return 0
}

func table(w io.Writer, f string, prompt, tokens int) {
	switch f {
	case "tokens":
		prompt += 5
	case "short":
		tokens--
	}
	name := "prompt tokens num"
	if f == "format" {
		name = "prompt length"
	}
	fmt.Fprintf(w, "\n#################################\n%s = %d\ndecode tokens num = %d\n", name, prompt, tokens)
	if f == "cut" {
		return
	}
	fmt.Fprintf(w, " vision time = 0.00 s\n pixels_mp = 0.00 MP\n"+
		"  audio process time = 0.00 s\n  audio input time = 0.00 s\n"+
		"prefill time = %.2f s\n decode time = %.2f s\n sample time = 0.00 s\nprefill speed = %.2f tok/s\n decode speed = %.2f tok/s\n"+
		" vision speed = 0.000 MP/s\n audio RTF = nan \n##################################\n",
		float64(prompt)/200, float64(tokens)/50, 200.0, 50.0)
}

// evaluate is ppl_eval CONFIG DIRECTORY of MNN 3.6.1.
func evaluate(args []string) int {
	if len(args) < 3 {
		fmt.Println("Usage: ./ppl_eval model/config.json wiki_output max_length")
		return 0
	}
	fmt.Printf("llmPath=s %s in main, 39 \ntextPath=s %s in main, 40 \n", args[1], args[2])
	p, sess, err := openPackage(args[1])
	if err != nil {
		fmt.Println("Load LLM error")
		return 0
	}
	defer p.Close()
	b, err := os.ReadFile(filepath.Join(args[2], "prompt.txt"))
	if err != nil {
		fmt.Println("Load prompt error")
		return 0
	}
	fmt.Print("main, 43, cost time: 2232.081055 ms\nmain, 54, cost time: 166.104996 ms\n" +
		"contextLength=768 in main, 86 \nstride=512 in main, 87 \n")
	tokens := p.Tokenizer.Encode(string(b))
	logits, err := sess.Forward(context.Background(), tokens)
	if err != nil || len(tokens) > 768 {
		return complain(1, "%d tokens: %v", len(tokens), err)
	}
	vocab, sum := len(logits)/len(tokens), 0.0
	for i, next := range tokens[1:] {
		row, all := logits[i*vocab:(i+1)*vocab], 0.0
		for _, v := range row {
			all += math.Exp(float64(v))
		}
		sum += math.Log(all) - float64(row[next])
	}
	v := math.Exp(sum / float64(len(tokens)-1))
	if fault("engine") == "worse" {
		v *= 1.05
	}
	fmt.Printf("Perplexity: %f\n", v)
	return 0
}
