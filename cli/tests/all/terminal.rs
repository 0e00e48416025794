//! On a terminal: a real one, by a pty.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use testbed::steady::blocking::eventually;

use crate::support::{Running, delete_lock, pid, read_to, redis, run, with_signals};

/// A session of its own whose terminal is ours, with `sh` in it.
struct Session {
    shell: Child,
    keyboard: File,
    screen: Receiver<String>,
}

impl Session {
    /// `setsid -c` makes standard input the terminal of the new session.
    fn start(url: &str, text: &str) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are pseudo terminals");
        grantpt(&ours).expect("it is ours");
        unlockpt(&ours).expect("it is ours");
        let name = ptsname(&ours, Vec::new())
            .expect("it has a name")
            .into_string()
            .expect("UTF-8");
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(&name)
                .expect("it is unlocked")
        };
        let mut command = with_signals();
        command
            .args(["setsid", "-c", "sh", "-c", text])
            .env("POLYLOCK_URL", url)
            .env("POLYLOCK", env!("CARGO_BIN_EXE_polylock"));
        let shell = command
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .expect("there is setsid");
        let screen = lines(ours.try_clone().expect("it is open"));
        Self {
            shell,
            keyboard: ours.into(),
            screen,
        }
    }

    /// Returns what is on the screen since the last call.
    fn wait_for(&self, text: &str) -> String {
        read_to(&self.screen, text)
    }

    /// The process whose number follows this word on the next line that has it.
    fn process(&self, word: &str) -> Pid {
        let screen = self.wait_for(word);
        let (_, number) = screen.rsplit_once(word).expect("it was read");
        pid(number)
    }

    /// Does what the next message about a stopped command advises.
    fn let_go_on(&self) {
        let screen = self.wait_for("the command is stopped");
        let advice = screen
            .rsplit_once(": ")
            .and_then(|(_, advice)| advice.split_once(" lets it go on"));
        let (advice, _) = advice.expect("it says how");
        let done = Command::new("sh")
            .args(["-c", advice])
            .status()
            .expect("there is a shell");
        assert!(done.success(), "{advice}: {done}");
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("it is open");
    }

    fn end(mut self) -> Option<i32> {
        self.shell.wait().expect("it ends").code()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The processes in it get SIGHUP when we close the terminal. Both calls fail if it has ended.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn lines(terminal: OwnedFd) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(File::from(terminal)).lines().map_while(Result::ok) {
            // The test may have seen enough.
            let _ = sender.send(line);
        }
    });
    lines
}

#[testbed::test]
async fn the_command_reads_the_terminal_and_the_script_after_it_does_too() {
    let server = redis().await;
    let text = "$POLYLOCK run --lock a -- sh -c 'read line; echo \"command <$line>\"'
        read line; echo \"script <$line>\"";
    let mut session = Session::start(&server.url(), text);
    session.press("one\n");
    session.wait_for("command <one>");
    session.press("two\n");
    session.wait_for("script <two>");
    assert_eq!(session.end(), Some(0));
}

#[testbed::test]
async fn the_script_reads_the_terminal_after_a_guard_that_was_killed() {
    let server = redis().await;
    let text = "$POLYLOCK run --lock a -- sh -c 'echo \"guard $PPID\"; exec cat'; echo \"code $?\"
        read line; echo \"script <$line>\"";
    let mut session = Session::start(&server.url(), text);
    kill_process(session.process("guard "), Signal::KILL).expect("it runs");
    session.wait_for("code 137");
    session.press("two\n");
    session.wait_for("script <two>");
    assert_eq!(session.end(), Some(0));
}

#[testbed::test]
async fn ctrl_c_is_the_command_s_alone() {
    let server = redis().await;
    let text = "$POLYLOCK run --lock b -- sh -c \"trap 'echo interrupted; exit 7' INT; echo ready; while :; do sleep 0.02; done\"
        echo \"code $?\"; read line; echo \"script <$line>\"";
    let mut session = Session::start(&server.url(), text);
    session.wait_for("ready");
    session.press("\u{3}");
    session.wait_for("code 7");
    session.press("two\n");
    session.wait_for("script <two>");
}

#[testbed::test]
async fn a_stopped_command_gives_the_terminal_back_and_goes_on() {
    let server = redis().await;
    // The script shares the terminal with polylock, and gets Ctrl-C, too.
    let text = "trap : INT; $POLYLOCK run --lock a -- sh -c 'echo ready; read line; echo \"command <$line>\"'; echo \"code $?\"";
    let mut session = Session::start(&server.url(), text);
    session.wait_for("ready");
    session.press("\u{1a}");
    session.wait_for("the command is stopped");
    // The terminal is polylock's: it gets the signal, and passes it on.
    session.press("\u{3}");
    session.wait_for("code 130");
    assert_eq!(session.end(), Some(0));
}

#[testbed::test]
async fn a_command_in_our_group_shares_the_terminal() {
    let server = redis().await;
    let text = "trap '' INT; $POLYLOCK run --no-group --lock a -- sh -c 'echo ready; read line; echo \"command <$line>\"'; echo \"code $?\"";
    let mut session = Session::start(&server.url(), text);
    session.wait_for("ready");
    session.press("one\n");
    session.wait_for("command <one>");
    session.wait_for("code 0");
    assert_eq!(session.end(), Some(0));
}

/// Ctrl-Z also stops what the command has started, for which the command waits. The job has a parent outside, by `set -m`: Ctrl-Z stops no
/// other one.
#[testbed::test]
async fn a_stopped_command_in_our_group_is_ended_by_the_terminal() {
    let server = redis().await;
    let text = "ulimit -c 0; set -m
        $POLYLOCK run --no-group --lock a -- sh -c \"trap 'exit 7' INT; trap 'exit 8' QUIT; sh -c 'echo child \\$\\$; exec cat'; :\"
        echo \"code $?\"";
    for (key, code) in [("\u{3}", "code 7"), ("\u{1c}", "code 8")] {
        let mut session = Session::start(&server.url(), text);
        let child = session.process("child ").as_raw_nonzero();
        session.press("\u{1a}");
        session.wait_for("the command is stopped");
        eventually("its child is stopped", || {
            let status = std::fs::read_to_string(format!("/proc/{child}/status")).expect("it runs");
            status.contains("State:\tT")
        });
        session.press(key);
        session.wait_for(code);
        assert_eq!(session.end(), Some(0));
    }
}

/// Ctrl-Z also stops what the command has started, and not polylock, for which the shell waits.
#[testbed::test]
async fn a_stopped_command_goes_on_as_the_message_says() {
    let server = redis().await;
    for options in ["--lock a", "--no-group --lock a"] {
        let text = format!(
            "set -m
            $POLYLOCK run {options} -- sh -c \"sh -c 'echo ready; read line; echo command \\$line'; :\"
            echo \"code $?\""
        );
        let mut session = Session::start(&server.url(), &text);
        session.wait_for("ready");
        session.press("\u{1a}");
        session.let_go_on();
        session.press("one\n");
        let screen = session.wait_for("command one");
        assert!(
            !screen.contains("code"),
            "the shell takes the job for stopped: {screen}"
        );
        session.wait_for("code 0");
        assert_eq!(session.end(), Some(0));
    }
}

/// The shell that runs the script sees that the script is stopped.
#[testbed::test]
async fn a_script_is_stopped_with_the_command_in_its_group_and_goes_on_with_it() {
    let server = redis().await;
    let text = "set -m
        sh -c '$POLYLOCK run --no-group --lock a -- sh -c \"echo ready; read line; echo command \\$line\"; echo \"code $?\"'
        echo \"stopped $?\"; fg; echo \"end $?\"";
    let mut session = Session::start(&server.url(), text);
    session.wait_for("ready");
    session.press("\u{1a}");
    // 128 and the number of SIGTSTP.
    session.wait_for("stopped 148");
    session.press("one\n");
    session.wait_for("command one");
    session.wait_for("code 0");
    session.wait_for("end 0");
    assert_eq!(session.end(), Some(0));
}

#[testbed::test]
async fn a_pager_after_a_pipe_reads_the_terminal() {
    let server = redis().await;
    // The command ends when nobody reads its output any more.
    let text = "$POLYLOCK run --lock a -- sh -c 'while echo page; do sleep 0.02; done' |
        (read page; echo \"pager shows <$page>\"; read key </dev/tty; echo \"pager <$key>\")
        echo \"code $?\"";
    let mut session = Session::start(&server.url(), text);
    session.wait_for("pager shows <page>");
    session.press("q\n");
    session.wait_for("pager <q>");
    session.wait_for("code 0");
    assert_eq!(session.end(), Some(0));
}

/// After `stty tostop`, the system stops who writes from the background, as polylock is while the command has the terminal.
#[testbed::test]
async fn messages_from_the_background_do_not_stop_polylock() {
    let server = redis().await;
    let text = "stty tostop; set -m
        $POLYLOCK run -v --lock a --ttl 9s -- sh -c \"grep Sig[BI] /proc/self/status; trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done\"
        echo \"code $?\"";
    let session = Session::start(&server.url(), text);
    let screen = session.wait_for("ready");
    let masks: Vec<u64> = screen
        .lines()
        .filter(|line| line.starts_with("Sig"))
        .filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok())
        .collect();
    let signals = [Signal::TTIN, Signal::TTOU].map(|signal| 1 << (signal.as_raw() - 1));
    let has_one = |mask: &u64| signals.iter().any(|signal| mask & signal != 0);
    assert!(
        masks.len() == 2 && !masks.iter().any(has_one),
        "the command has {screen}"
    );
    delete_lock(&server.url(), "a");
    session.wait_for("was lost");
    session.wait_for("code 76");
    assert_eq!(session.end(), Some(0));
}

#[testbed::test]
async fn hold_in_the_background_leaves_the_terminal_to_the_script() {
    let server = redis().await;
    let text = "stty tostop; set -m
        $POLYLOCK hold --lock a --for 1s & wait $!; echo \"code $?\"
        read line; echo \"script <$line>\"";
    let mut session = Session::start(&server.url(), text);
    session.wait_for("token ");
    session.wait_for("code 0");
    session.press("two\n");
    session.wait_for("script <two>");
    assert_eq!(session.end(), Some(0));
}

#[testbed::test]
async fn hold_reads_the_terminal_once_it_has_it() {
    let server = redis().await;
    let text = "set -m
        $POLYLOCK hold --lock a & read line; fg; echo \"code $?\"";
    let mut session = Session::start(&server.url(), text);
    session.wait_for("token ");
    session.press("\n\u{4}");
    session.wait_for("standard input has ended: releasing");
    session.wait_for("code 0");
    assert_eq!(session.end(), Some(0));
}

#[testbed::test]
async fn break_at_once_asks_and_only_yes_is_yes() {
    let server = redis().await;
    let url = server.url();
    let holder = Running::start(&url, &["hold", "--lock", "a", "--ttl", "9s"]);
    let line = holder.line();
    let token = line.strip_prefix("token ").expect("its token");
    let text = format!(
        "for answer in no y yes; do $POLYLOCK break --lock a --token {token} --now; echo \"code $?\"; done; read line"
    );
    let mut session = Session::start(&url, &text);
    let mut answer = |keys: &str, code: &str| {
        session.press(keys);
        let screen = session.wait_for(code);
        assert!(
            screen.contains("may go on beside the next one until it notices"),
            "{screen}"
        );
        screen
    };
    for no in ["no\n", "y\n"] {
        let screen = answer(no, "code 64");
        assert!(screen.contains("nothing was changed"), "{screen}");
        assert_eq!(run(&url, &["status", "--lock", "a"]).code, Some(0), "it is still held");
    }
    let screen = answer("yes\n", "code 0");
    assert!(
        screen.contains("the lock is free; its former holder may act"),
        "{screen}"
    );
    session.press("\n");
    assert_eq!(session.end(), Some(0));
    holder.wait_for_message("was lost");
    assert_eq!(holder.end().code, Some(76));
}
