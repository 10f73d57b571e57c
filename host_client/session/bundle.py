"""Bundle JSON v1: one session directory as one file on the host, the same for this Outpost and the TypeScript one.

```
{"version":1,"format":FORMAT,"id":ID,"source":PATH IN THE SANDBOX,
 "files":[{"path":PATH,"data":CANONICAL BASE64,"sha256":HEX},…],"digest":HEX}
```

Written without spaces, files in byte order of their paths. `sha256` and `digest` are this Outpost's own additions,
which the other ignores. Any legal spelling of the JSON is read. Memory holds the index, never the contents, in both
directions.
"""

from __future__ import annotations

from host_client.session.bundle_identity import read_identity
from host_client.session.bundle_reader import SavedBundle
from host_client.session.bundle_writer import BundleWriter
from host_client.session.folder import Folder

__all__ = ["BundleWriter", "Folder", "SavedBundle", "read_identity"]
