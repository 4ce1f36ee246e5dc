//! A report as one HTML file: no network, no script, charts as SVG inside.

use super::record::Record;
use super::{chart, summary, tables};
use pulldown_cmark::{Event, Options, Parser};

const STYLE: &str = "\
body{margin:0 auto;max-width:76rem;padding:0 1rem;font:1rem/1.5 system-ui,sans-serif}\
table{display:block;overflow-x:auto;border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.3rem .6rem;border-top:1px solid #d1d5db;white-space:nowrap}\
pre{white-space:pre-wrap}figure{display:inline-block;margin:.5rem}svg{max-width:100%;height:auto}";

/// Returns the report of these records: of each its summary, charts, tables, and settings.
pub fn page(records: &[Record]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <link rel=\"icon\" href=\"data:,\"><title>monolite bench</title>\
         <style>{STYLE}</style></head><body>\n"
    );
    for record in records {
        let command = &record.command;
        let title = format!("# bench {}, {}\n\n```\n{command}\n```\n\n", record.suite, record.date);
        markup(&title, &mut page);
        let measured: String =
            tables::preamble(record).iter().map(|line| format!("- {line}\n")).collect();
        markup(&measured, &mut page);
        markup(&summary::of(record).to_markdown(), &mut page);
        for chart in chart::all(record) {
            page.push_str(&format!("<figure id=\"{}-{}\"><figcaption>", record.suite, chart.id));
            markup(&chart.title, &mut page);
            page.push_str(&format!("</figcaption>{}</figure>\n", chart::svg(&chart)));
        }
        for table in tables::all(record) {
            markup(&table.to_markdown(), &mut page);
        }
        markup(&tables::settings(record), &mut page);
    }
    page.push_str("</body></html>\n");
    page
}

/// Adds Markdown as HTML. What a record says is text: HTML in it is shown and not followed.
fn markup(markdown: &str, page: &mut String) {
    let events = Parser::new_ext(markdown, Options::ENABLE_TABLES).map(|event| match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        event => event,
    });
    pulldown_cmark::html::push_html(page, events);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::files::tests::golden_record;

    #[test]
    fn a_page_is_one_file_that_asks_the_network_for_nothing() {
        let page = page(&[golden_record()]);
        for outside in ["<script", "<img", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        let addresses = page.matches("http").count();
        assert_eq!(addresses, page.matches("http://www.w3.org/2000/svg").count());
        assert!(page.contains("<svg"), "{page}");
        assert!(page.matches("<table>").count() > 3, "{page}");
    }

    #[test]
    fn what_a_record_says_is_text_and_not_markup() {
        let mut record = golden_record();
        record.machine.cpu = "<b>fast</b>".into();
        record.cells[0].name = "<i>line</i>".into();
        let page = page(&[record]);
        assert!(page.contains("&lt;b&gt;fast") && !page.contains("<b>fast"));
        assert!(page.contains("&lt;i&gt;line") && !page.contains("<i>line"));
    }
}
