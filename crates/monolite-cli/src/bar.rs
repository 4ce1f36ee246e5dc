//! Progress on standard error: a bar on a terminal, a line per step elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use monolite_bench::progress::Progress;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

/// Shows what a run is doing.
pub(crate) struct Bar {
    bar: ProgressBar,
    terminal: bool,
    last: Mutex<String>,
}

impl Bar {
    pub(crate) fn new() -> Bar {
        let terminal = std::io::stderr().is_terminal();
        let target =
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Bar { bar: ProgressBar::with_draw_target(None, target), terminal, last: Mutex::default() }
    }
}

impl Progress for Bar {
    fn begin(&self, what: &str, total: Option<u64>) {
        let form = match total {
            Some(total) if total > 1_000 => "{msg} {wide_bar} {human_pos}/{human_len}, {eta} left",
            Some(_) => "{wide_bar} {pos}/{len} {msg}",
            None => "{spinner} {msg}",
        };
        self.bar.set_style(ProgressStyle::with_template(form).expect("the template is valid"));
        self.bar.reset();
        match total {
            Some(total) => self.bar.set_length(total),
            None => self.bar.unset_length(),
        }
        self.bar.set_message(what.to_owned());
        self.bar.enable_steady_tick(Duration::from_millis(200));
        let mut last = self.last.lock().expect("nobody panics while holding it");
        if !self.terminal && *last != what {
            let _ = writeln!(std::io::stderr(), "{what}");
            what.clone_into(&mut last);
        }
    }

    fn advance_to(&self, done: u64) {
        self.bar.set_position(done);
    }

    fn finish(&self) {
        self.bar.disable_steady_tick();
        self.bar.finish_and_clear();
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(std::io::stderr(), "{text}");
        });
    }
}
