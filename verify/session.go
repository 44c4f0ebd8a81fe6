package verify

import (
	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

// session returns an empty session of the package without observers. Each mode has its own, because a session
// caches weights in the form in which they are multiplied.
func (s *Subject) session(mode backend.Mode) (*runtime.Session, error) {
	sess := s.sessions[mode]
	if sess == nil {
		var err error
		if sess, err = runtime.NewSession(s.Package, cpu.Backend{}, runtime.Options{
			Mode: mode, DynamicOption: s.Package.Config.DynamicOption, Threads: s.Options.Threads,
			CacheBytes: s.Options.Memory / sessionShare, CodeBytes: max(1, s.Options.Memory/codeShare), ExpertBytes: max(1, s.Options.Memory/expertShare),
		}); err != nil {
			return nil, err
		}
		if s.sessions == nil {
			s.sessions = map[backend.Mode]*runtime.Session{}
		}
		s.sessions[mode] = sess
	}
	sess.Reset()
	sess.Observe, sess.Peaks = nil, nil
	return sess, nil
}
