"""The report page: one self-contained HTML file on a search, offline or within a training.

In order: `record` (what a page shows, as plain data); `panels`, `drawing` and `loads` (parts of a record, made of
timelines and groups); `words` and `tables` (the record in sentences and in HTML tables); `sections` and `page` (all of
it in one file, with the scripts in `assets/`, which draw). `campaign_record` and `campaign_page` are the same for
campaigns. The page knows of a search only its `record`, which the code that ran the search makes:
`experiments/report/search_record.py` or `search/online/report/step_record.py`.

The package is on this floor because a live step (`search/online`) writes the page, too, and may not import
`experiments`; both makers of records are above it. It is loaded when a page is asked for, never by `import placer`.
"""
