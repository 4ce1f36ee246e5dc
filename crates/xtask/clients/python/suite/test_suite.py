from sqlalchemy.testing import provision
from sqlalchemy.testing.suite import *


@provision.temp_table_keyword_args.for_db("sqlite")
def _temporary(config, engine):
    return {"prefixes": ["TEMPORARY"]}
