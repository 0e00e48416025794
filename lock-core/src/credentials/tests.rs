use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;

use testbed_steady::happens;
use tokio::sync::oneshot;

use super::*;

const LONG: Duration = Duration::from_secs(600);

/// A path of this test's own, removed in the end. If the test is killed, it stays beside the test binary.
struct Path(PathBuf);

impl Path {
    fn new(name: &str) -> Self {
        let binary = std::env::current_exe().expect("a test knows where it is");
        Self(binary.with_file_name(format!("polylock-{}-{name}", std::process::id())))
    }

    fn write(&self, content: impl AsRef<[u8]>) {
        std::fs::write(&self.0, content).expect("a temporary file");
    }

    fn source(&self) -> CredentialSource {
        CredentialSource::file(&self.0)
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_file_is_read_anew_each_time() {
    let file = Path::new("anew");
    for (content, password) in [
        ("first", "first"),
        ("second\n", "second"),
        ("third\r\n", "third"),
        (" two lines\n\n", " two lines\n"),
        ("\r", "\r"),
    ] {
        file.write(content);
        let credentials = file.source().get(LONG).await.expect("it is there");
        assert_eq!((credentials.password(), credentials.user()), (password, None));
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_file_is_said() {
    let file = Path::new("wrong");
    let refusal = async || {
        let error = file.source().get(LONG).await.expect_err("it has no password");
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(
            error.is_not_executed() && !format!("{error:?}").contains("s3cret"),
            "{error:?}"
        );
        let said = error.to_string();
        assert!(said.contains(file.0.to_str().expect("a good path")), "{said}");
        said
    };
    assert!(
        refusal()
            .await
            .contains("cannot be read: check its path and permissions")
    );
    for (content, said) in [
        (&b""[..], "is empty: put the password into it"),
        (b"\n", "is empty"),
        (b"s3cret\xff", "is not UTF-8"),
        (&[b'x'; 64 * 1024 + 1], "more than 65536 bytes"),
    ] {
        file.write(content);
        let refusal = refusal().await;
        assert!(refusal.contains(said), "{refusal}");
    }
}

/// A pipe into which nobody writes does not even open.
#[cfg(unix)]
#[test]
fn a_file_that_does_not_open_keeps_no_runtime() {
    use testbed_steady::blocking::receives;
    use tokio::runtime::Builder;

    let file = Path::new("pipe");
    let made = std::process::Command::new("mkfifo").arg(&file.0).status();
    assert!(made.expect("every Unix has it").success());
    let (tell, told) = channel();
    let source = file.source();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let error = runtime.block_on(source.get(Duration::from_millis(10)));
        drop(runtime);
        tell.send(error.expect_err("nobody writes").kind())
    });
    assert_eq!(receives("the end of the runtime", &told), ErrorKind::Unavailable);

    // The read ends, and the next one begins.
    drop(std::fs::OpenOptions::new().write(true).open(&file.0));
    std::fs::remove_file(&file.0).expect("it is there");
    file.write("found");
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let credentials = runtime.block_on(file.source().get(LONG)).expect("it is a file now");
    assert_eq!(credentials.password(), "found");
}

/// The read that hangs may have an old file, whose name another one has by now.
#[tokio::test]
async fn a_read_that_hangs_keeps_none_from_a_later_one_until_there_are_many() {
    let (path, other) = (PathBuf::from("hangs"), PathBuf::from("does not"));
    let (let_go, waits) = channel::<()>();
    let waits = Arc::new(Mutex::new(waits));
    let begun = Arc::new(AtomicU32::new(0));
    let begins = || {
        let begun = begun.clone();
        move || Ok(begun.fetch_add(1, Ordering::SeqCst))
    };
    let short = Duration::from_millis(1);
    for number in 0..read::AT_ONCE {
        let next = read::on_a_thread(&path, LONG, begins());
        happens("a read beside those that hang", next)
            .await
            .expect("it does not hang");
        let waits = waits.clone();
        let (tell, told) = oneshot::channel();
        let hanging = move || {
            let _ = tell.send(());
            let _ = waits.lock().expect("nothing panics").recv();
            Ok(())
        };
        let path = path.clone();
        let read = tokio::spawn(async move { read::on_a_thread(&path, short, hanging).await });
        happens("the thread of the read", told).await.expect("it has begun");
        assert!(!read.is_finished(), "the read {number} hangs");
        read.abort();
    }
    let so_many = begun.load(Ordering::SeqCst);
    let next = read::on_a_thread(&path, short, begins());
    assert!(timeout(Duration::from_millis(10), next).await.is_err());
    assert_eq!(begun.load(Ordering::SeqCst), so_many, "begun beside too many that hang");
    happens("a read of another path", read::on_a_thread(&other, LONG, begins()))
        .await
        .expect("it does not hang");
    drop(let_go);
    let next = happens("a read after them", read::on_a_thread(&path, LONG, begins())).await;
    assert_eq!(next.expect("it does not hang"), so_many + 1);
}

/// Tokio's clock stands still while a file is read.
#[tokio::test(start_paused = true)]
async fn a_file_is_read_on_paused_time() {
    let file = Path::new("paused");
    file.write("found");
    let credentials = file.source().get(LONG).await.expect("it is there");
    assert_eq!(credentials.password(), "found");
}

#[tokio::test]
async fn a_variable_that_is_not_set_is_named() {
    let path = CredentialSource::env("PATH")
        .get(LONG)
        .await
        .expect("every process has it");
    assert_eq!(path.password(), std::env::var("PATH").expect("it is UTF-8"));
    for name in ["POLYLOCK_NOT_SET", "", "A=B", "A\0B"] {
        let error = CredentialSource::env(name).get(LONG).await.expect_err("it is not set");
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        let said = error.to_string();
        assert!(
            said.contains(&format!("variable {name}, ")) && said.contains("is not set"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_function_is_called_each_time_and_its_error_kept() {
    let calls = Arc::new(AtomicU32::new(0));
    let source = CredentialSource::ask({
        let calls = calls.clone();
        move || {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            async move {
                match call {
                    2 => Err(Error::new(ErrorKind::Denied, "the secret store is locked")),
                    call => Ok(Credentials::new(call.to_string())
                        .with_user("app")
                        .with_previous_password("old")),
                }
            }
        }
    });
    for call in ["0", "1"] {
        let credentials = source.get(LONG).await.expect("it has some");
        let all = (
            credentials.user(),
            credentials.password(),
            credentials.previous_password(),
        );
        assert_eq!(all, (Some("app"), call, Some("old")));
        assert!(!format!("{credentials:?}").contains("old"));
    }
    let error = source.get(LONG).await.expect_err("the third one fails");
    assert_eq!(
        (error.kind(), &*error.to_string()),
        (ErrorKind::Denied, "the secret store is locked")
    );
}

#[tokio::test(start_paused = true)]
async fn a_function_that_hangs_or_panics_is_an_error() {
    let hangs = CredentialSource::ask(std::future::pending);
    let error = hangs.get(Duration::from_secs(5)).await.expect_err("it never answers");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("not read within 5s"), "{error}");

    let panics = CredentialSource::ask(|| -> BoxFuture<'static, Result<Credentials>> { panic!("a test's") });
    let error = panics.get(LONG).await.expect_err("it panics");
    assert_eq!(error.kind(), ErrorKind::Unexpected);
}

#[test]
fn equal_sources_are_the_same_place() {
    let ask = CredentialSource::ask(std::future::pending);
    assert_eq!(ask, ask.clone());
    assert_ne!(ask, CredentialSource::ask(std::future::pending));
    assert_eq!(CredentialSource::env("A"), CredentialSource::env("A"));
    assert_ne!(CredentialSource::env("A"), CredentialSource::file("A"));
    assert_eq!(
        format!("{ask:?} {:?}", CredentialSource::env("A")),
        r#"Ask(..) Env("A")"#
    );
}
