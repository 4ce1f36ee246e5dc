//! The server as our own client sees it.

use monolite::Value;
use monolite_client::{Client, Error};

use crate::served::Served;

/// A runtime for the client, and a client of a new server.
fn with_client(test: impl AsyncFnOnce(Client)) {
    let served = Served::one();
    let client = Client::new(&served.url, None).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(test(client));
}

#[test]
fn values_come_back_as_they_were_sent() {
    with_client(async |client| {
        client.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v)", &[]).await.unwrap();
        let values = [
            Value::Null,
            Value::Integer(i64::MIN),
            Value::Real(0.1),
            Value::Text("a\"é".into()),
            Value::Blob(vec![0, 255, 7, 1]),
        ];
        for (nth, value) in values.iter().enumerate() {
            let added =
                client.execute("INSERT INTO t(v) VALUES (?)", std::slice::from_ref(value)).await;
            let added = added.unwrap();
            assert_eq!((added.changes, added.last_rowid), (1, Some(nth as i64 + 1)));
        }
        let found = client.execute("SELECT v FROM t ORDER BY id", &[]).await.unwrap();
        assert_eq!(found.columns, ["v"]);
        assert_eq!(found.rows.concat(), values);
    });
}

#[test]
fn stream_has_one_transaction_and_says_so() {
    with_client(async |client| {
        let mut stream = client.stream();
        stream.run_script("CREATE TABLE t(v); BEGIN").await.unwrap();
        assert!(!stream.is_autocommit().await.unwrap());
        let answers = stream.run(&[("INSERT INTO t VALUES (1)", &[]), ("SELEC", &[])]).await;
        let [added, failed] = answers.unwrap().try_into().unwrap();
        assert_eq!(added.unwrap().changes, 1);
        assert!(matches!(failed, Err(Error::Refused { code, .. }) if code == "SQL_INPUT_ERROR"));
        stream.execute("COMMIT", &[]).await.unwrap();
        assert!(stream.is_autocommit().await.unwrap());
        stream.execute("BEGIN", &[]).await.unwrap();
        stream.execute("INSERT INTO t VALUES (2)", &[]).await.unwrap();
        stream.close().await.unwrap();
        let counted = client.execute("SELECT count(*) FROM t", &[]).await.unwrap();
        assert_eq!(counted.rows, [[Value::Integer(1)]]);
    });
}

#[test]
fn batch_is_done_as_a_whole_or_not_at_all() {
    with_client(async |client| {
        client.execute("CREATE TABLE t(v PRIMARY KEY)", &[]).await.unwrap();
        let add = "INSERT INTO t VALUES (?) RETURNING v";
        let [one, two] = [1, 2].map(|number| [Value::Integer(number)]);
        let answers = client.batch(&[(add, &one[..]), ("DELETE FROM t", &[]), (add, &one)]).await;
        let answers = answers.unwrap();
        let changes: Vec<u64> = answers.iter().map(|answer| answer.changes).collect();
        assert_eq!((changes, &answers[2].rows), (vec![1, 1, 1], &vec![one.to_vec()]));
        let failed = client.batch(&[(add, &two[..]), (add, &one)]).await;
        let failed = failed.unwrap_err();
        assert_eq!(failed.code(), Some("SQLITE_CONSTRAINT"));
        let counted = client.execute("SELECT count(*) FROM t", &[]).await.unwrap();
        assert_eq!(counted.rows, [[Value::Integer(1)]]);
    });
}

#[test]
fn unusable_url_and_absent_server_are_told_apart() {
    let unusable = Client::new("ftp://127.0.0.1/", None).unwrap_err();
    assert_eq!(
        unusable.to_string(),
        "ftp://127.0.0.1/ cannot be used: begin it with http:// or https://"
    );
    let absent = Client::new("http://127.0.0.1:9/", None).unwrap();
    let asked = absent.execute("SELECT 1", &[]);
    let error = tokio::runtime::Runtime::new().unwrap().block_on(asked).unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
}
