//! The routes, called without a socket.

use actix_web::http::Method;
use actix_web::test::{TestRequest, call_service, init_service, read_body};

use super::*;

#[actix_web::test]
async fn each_error_has_its_status() {
    let db = Database::open(":memory:").unwrap();
    create_schema(&db).await.unwrap();
    let shared = db.clone();
    let app = init_service(App::new().configure(|service| routes(service, shared))).await;
    let ask = |method: Method, path: &str, text: &'static str| {
        let request = TestRequest::with_uri(path).method(method).set_payload(text).to_request();
        call_service(&app, request)
    };

    assert_eq!(ask(Method::GET, "/notes/tea", "").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(ask(Method::PUT, "/notes/tea", "green").await.status(), StatusCode::OK);
    assert_eq!(ask(Method::PUT, "/notes/tea", "black").await.status(), StatusCode::CONFLICT);
    let found = ask(Method::GET, "/notes/tea", "").await;
    assert_eq!(read_body(found).await, "green");

    db.close().unwrap();
    let refused = ask(Method::PUT, "/notes/milk", "white").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers().get(header::RETRY_AFTER).unwrap(), "1");
}
