"""What the company has in front of its services: a login. Here a name in a header is enough."""
from app import app
from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser
from starlette.middleware.authentication import AuthenticationMiddleware

APPROVERS = {"ana", "eve"}


class Known(BaseUser):
    def __init__(self, id):
        self.id = id

    is_authenticated = True


class Login(AuthenticationBackend):
    async def authenticate(self, connection):
        name = connection.headers.get("x-user")
        if name is None:
            return None
        return AuthCredentials(["authenticated", *(["approver"] if name in APPROVERS else [])]), Known(name)


site = AuthenticationMiddleware(app, backend=Login())
